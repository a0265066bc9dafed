"""Review of rules: verdict tables, costly instructions with their lines and edits, differences, drawings."""
