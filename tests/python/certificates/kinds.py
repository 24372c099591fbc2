"""Every kind of fit with a certificate, by name."""

import logistic_kinds
import margin_kinds
import polynomial_kinds
import structured_kinds

KINDS = {
    **margin_kinds.KINDS,
    **logistic_kinds.KINDS,
    **structured_kinds.KINDS,
    **polynomial_kinds.KINDS,
}
