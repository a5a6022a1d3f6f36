"""The report page: its content as one JSON document, and the HTML that shows it."""
