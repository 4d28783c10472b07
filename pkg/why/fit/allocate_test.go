package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// A claim may have no requests. It gets no devices, and fits.
func TestClaimWithoutRequests(t *testing.T) {
	m := NewModel(cluster.Objects{}, false)
	devices, err := m.allocate(t.Context(), allocation.Nothing(), nil, &corev1.Node{}, []*resourceapi.ResourceClaim{{}})
	require.NoError(t, err)
	assert.NotNil(t, devices)
	assert.Empty(t, devices)
}
