"""What the scripts under runs/ share, and the tables, figures and theorems of the paper by name."""
