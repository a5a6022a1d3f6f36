"""The report page of studies: what goes into it, as one JSON document, and the page that shows the document."""
