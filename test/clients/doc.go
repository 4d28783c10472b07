// Package clients runs programs of others on simulated GPUs: they know nothing of the simulation, and
// can contradict it. `make test-clients` fetches them (fetch.sh).
package clients
