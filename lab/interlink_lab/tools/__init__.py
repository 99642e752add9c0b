"""Tools of the checkout, behind the recipes of the justfile. They read the tree, never the product's modules."""
