"""The kinds of data that this package knows, a folder each. They import the trunk, and not each other."""
