// Package client reads and writes the API objects of Tranche, GPUNodes, PartitionPlans and
// PartitionProfiles, at the API server, with the types of api/v1beta1.
//
// It is for programs that must stay small, the node's plugin first of all: a REST client,
// and no scheme but that of two kinds. test/clientfake is the same for tests.
package client
