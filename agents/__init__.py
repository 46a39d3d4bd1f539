"""The agents of an application: one thin async function per file, no logic of their own."""
