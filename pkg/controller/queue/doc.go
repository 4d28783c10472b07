// Package queue gives requests to a controller from elsewhere in the program.
//
// Imports: none.
package queue
