"""What the API says and takes, noun by noun, as it stands in openapi.json."""
