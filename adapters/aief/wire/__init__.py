"""Messages of AIEF, as the gateway writes them and as it reads them."""
