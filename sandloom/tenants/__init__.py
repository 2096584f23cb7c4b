"""Who uses the deployment: their keys, what they may have, what they used."""
