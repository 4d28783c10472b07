// Package clientfake is pkg/client without an API server, for tests. Objects are
// kept in memory; nothing of their definitions (defaults, validation, the
// separation of status) holds.
//
// Imports: api/v1alpha1, pkg/client.
package clientfake
