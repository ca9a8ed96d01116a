"""The way out, as far as it needs Python: what a loop's transport keeps, and a bridge under the descriptors."""
