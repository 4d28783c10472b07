// Package node is the kubelet plugin: it ties cards, slices and claims to the
// kubelet and the API server, and shows how it is doing.
//
// node.go starts and stops everything. driver.go answers the kubelet. cards.go
// keeps what is known about the cards, publisher.go publishes it, owners.go
// looks out for other systems that serve the same cards.
package node
