"""Does the same run mean the same? `babelgate check --across`: scenarios are played through each protocol that a server
speaks, and what they meant is compared."""
