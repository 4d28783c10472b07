// Package text formats lists, counts, times and amounts for the messages of all programs. It imports only
// the standard library.
package text
