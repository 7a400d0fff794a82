"""The checks of the exercises: `nb01` holds those of notebook 01, and so on."""
