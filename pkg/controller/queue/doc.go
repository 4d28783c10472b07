// Package queue gives requests to a controller from elsewhere in the program.
package queue
