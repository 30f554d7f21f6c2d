"""Real servers without Docker: Apache Kafka from Maven's jars, Valkey from a wheel (DESIGN §11)."""
