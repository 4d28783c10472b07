// Package demand is what a pod requests: devices by its claims and extended resources, and volumes.
//
// demand.go finds its claims, request.go reads their requests, and asks.go has them as text. volumes.go has its
// volumes, others.go what else keeps a pod off nodes, and key.go what pods with equal demands share.
//
// Everything is pure.
package demand
