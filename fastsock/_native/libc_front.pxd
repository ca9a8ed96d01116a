# The front end at the C library's calls.

cdef list reason_texts
