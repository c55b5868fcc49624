"""Gates: limits that a report is judged by, of growth against another one (`growth`) or of itself (`budget`)."""
