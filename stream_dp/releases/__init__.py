"""The plan of an application (checked once, at start), the release engine, and the public record models."""
