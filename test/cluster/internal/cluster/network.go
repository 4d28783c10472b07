package cluster

import "fmt"

// Addresses. They exist in the machines' network namespaces only: the host and
// other clusters may use the same.
const (
	apiServerAddress = "10.89.0.1"
	apiServerPort    = 6443
	// servicesSubnet is that of services; its first address is the API server's.
	servicesSubnet = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
	// dnsAddress is where pods look for DNS. Nobody answers there: the
	// cluster has no DNS server.
	dnsAddress = "10.96.0.10"
	maxNodes   = 100
)

// nodeAddress is the address of the node with the given number, from zero.
func nodeAddress(number int) string { return fmt.Sprintf("10.89.0.%d", 11+number) }

// podSubnet is the subnet of that node's pods.
func podSubnet(number int) string { return fmt.Sprintf("10.89.%d.0/24", 1+number) }

func apiServerURL() string { return fmt.Sprintf("https://%s:%d", apiServerAddress, apiServerPort) }
