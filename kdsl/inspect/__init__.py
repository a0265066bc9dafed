"""Facts about compiled code: what ptxas reports, what stands in PTX and SASS, how banks are hit."""
