// Package queue gives requests to a controller from elsewhere in the program.
//
// It imports nothing.
package queue
