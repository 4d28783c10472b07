package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The marks by which the controller finds its own, and by which they are found when
// Tranche is uninstalled.
const (
	// RepartitioningTaint marks devices of GPUs that a profile switch changes, and devices
	// that the new profile does not offer. The value is the profile.
	RepartitioningTaint = "tranche.dev/repartitioning"
	// FromChartLabel marks the PartitionProfiles that are made of the chart's files.
	FromChartLabel = "tranche.dev/from-chart"
	// PausedValue is what a node's label says that starts a client of GPUs, while the
	// client is paused. It was "true" before.
	PausedValue = "paused-for-tranche"
)

// RepartitioningTaintValue is the value of the taint while a node is switched to a
// profile: the profile's name, cut and completed by a hash where it is longer than the
// 63 characters that a taint value can have; "none" for no profile.
func RepartitioningTaintValue(profile string) string {
	const most = validation.LabelValueMaxLength
	switch {
	case profile == "":
		return "none"
	case len(profile) <= most:
		return profile
	}
	sum := sha256.Sum256([]byte(profile))
	return strings.TrimRight(profile[:most-9], "-.") + "-" + hex.EncodeToString(sum[:4])
}
