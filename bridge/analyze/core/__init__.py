"""What every room of the analysis needs: the catalogue of tables, sums per group, the call tree, names, selections."""
