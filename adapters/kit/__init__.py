"""Building blocks of all adapters, in this repository and in other packages.

`docs/plugins.md` says which of them are stable. Apart from itself, the kit imports only `babelgate.canonical`.
"""
