"""Files and rows as bodies of HTTP requests and answers: formats, conditions, uploads, streams."""
