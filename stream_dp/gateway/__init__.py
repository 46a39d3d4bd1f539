"""The readers' gateway: releases of Kafka topics over HTTP, each reader's own audience and nothing else."""
