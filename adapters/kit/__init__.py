"""Parts that every adapter is made of, for the adapters of this repository and those of other packages.

`docs/plugins.md` says which of them are stable. They import `babelgate.canonical` and nothing else of Babelgate.
"""
