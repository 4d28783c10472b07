// Package nos converts what nos has for GPUs to PartitionProfiles: its node labels, which say how
// nos partitions the GPUs of a node when pods ask for partitions or slices.
//
// The objects ElasticQuota and CompositeElasticQuota have no counterpart. What nos writes into
// annotations of nodes, and its tables of geometries, are not needed: the hardware says what it can.
package nos
