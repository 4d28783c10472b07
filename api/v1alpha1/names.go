package v1alpha1

// The marks by which the controller finds its own, and by which they are found when
// Tranche is uninstalled.
const (
	// RepartitioningTaint is the key of the taints on cards, and on nodes, that are
	// being switched.
	RepartitioningTaint = "tranche.dev/repartitioning"
	// ManagedByLabel and ManagedByController mark the DeviceTaintRules of the
	// controller.
	ManagedByLabel      = "app.kubernetes.io/managed-by"
	ManagedByController = "tranche-controller"
	// FromChartLabel marks the PartitionProfiles that are made of the chart's files.
	FromChartLabel = "tranche.dev/from-chart"
	// PausedValue is what a node's label says that starts a client of GPUs, while the
	// client is paused. It was "true" before.
	PausedValue = "paused-for-tranche"
)
