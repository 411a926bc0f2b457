"""What a comparison leaves for people: tables, figures, a page, TensorBoard events, animations."""
