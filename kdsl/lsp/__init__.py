"""The language server: what an editor shows of `.kds` files while they are written. Imports no compiler."""
