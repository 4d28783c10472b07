// Package overview sums up the nodes of a cluster for those who have too many to look at each: by
// model and by state, with the nodes in trouble. Changes tells what is different from one moment
// to the next.
//
// Everything is pure.
package overview
