"""The command line `pdi-gym`."""
