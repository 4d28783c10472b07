// Package sharing decides how the GPUs of the kubelet plugin's node are shared now, and
// knows whether MPS daemons work there.
//
// sharing.go goes over to what is wanted when no share of a GPU is held. daemons.go knows
// the daemons, supervisor.go passes calls to those of the driver that is there.
//
// Imports: api/v1alpha1, pkg/claim/ledger, pkg/durable, pkg/gpu, pkg/hardware/mps,
// pkg/node/telemetry, pkg/profile, pkg/share,
// pkg/share/offer.
package sharing
