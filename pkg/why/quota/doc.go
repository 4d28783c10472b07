// Package quota says which ResourceQuotas have no room for a pod or a claim, by their numbers.
//
// Everything is pure.
package quota
