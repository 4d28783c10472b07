// Package clientfake implements pkg/client in memory, for tests without an API server. It applies
// no defaults and no validation, and does not separate the status of an object from its spec.
package clientfake
