"""The hostile set: small programs that each try one thing against the sandbox they run in.

It needs nothing but the standard library, so that it runs inside: ``python3 -m hostile NAME`` beside a copy of this
directory. ``catalogue.PROGRAMS`` lists them with what each level contains.
"""
