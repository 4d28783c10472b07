package claim

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// runningPods is a Config.Running by names.
func runningPods(names ...string) func([]ledger.Pod) ([]ledger.Pod, error) {
	return func(pods []ledger.Pod) ([]ledger.Pod, error) {
		return slices.DeleteFunc(slices.Clone(pods), func(p ledger.Pod) bool { return !slices.Contains(names, p.Name) }), nil
	}
}

// Pods are deleted by force while the kubelet is down: as long as a container runs, what
// it holds is not released.
func TestReconcileSparesRunningContainers(t *testing.T) {
	for name, c := range map[string]*resourceapi.ResourceClaim{
		"whole GPU": claims.For("a", claims.Whole(0)),
		"partition": claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			p, m := startNode(t, 1)
			mustPrepare(t, m, c)

			m.Running = runningPods("pod-a")
			findings := m.Reconcile(t.Context(), noClaims)
			require.Equal(t, []string{"LeftoverInUse"}, reasons(findings))
			require.NoError(t, findings[0].Err)
			assert.Contains(t, findings[0].Message, "claim team/claim-a (a) is gone or was given other devices, but containers of its pods (pod pod-a) still run and hold gpu-0000-01-00-0")

			m.Running = func([]ledger.Pod) ([]ledger.Pod, error) { return nil, errScripted }
			findings = m.Reconcile(t.Context(), noClaims)
			require.Equal(t, []string{"LeftoverInUse"}, reasons(findings))
			require.ErrorIs(t, findings[0].Err, errScripted)
			assert.True(t, m.Ledger.Has("a"))
			assert.FileExists(t, p.cdiFile("a"))
			assert.Empty(t, p.hardware.destroyed)

			m.Running = runningPods("another")
			require.Equal(t, []string{"LeftoverReleased"}, reasons(m.Reconcile(t.Context(), noClaims)))
			p.nothingHeld(m)
		})
	}
}

// The kubelet's own release needs no look: it has ended the containers.
func TestUnprepareDoesNotLookForContainers(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.Whole(0)))
	m.Running = runningPods("pod-a")
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// A claim that pods share later is theirs, too, as long as their containers run.
func TestReconcileKeepsPodsUpToDate(t *testing.T) {
	_, m := startNode(t, 1)
	c := claims.For("a", claims.Whole(0))
	mustPrepare(t, m, c)
	podsOf := func() []string {
		r, ok := m.Ledger.Get("a")
		require.True(t, ok)
		return r.PodNames()
	}
	usedBy := func(names ...string) *resourceapi.ResourceClaim {
		c := c.DeepCopy()
		c.Status.ReservedFor = nil
		for _, name := range names {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name})
		}
		return c
	}
	for _, step := range []struct {
		running, reserved, want []string
	}{
		{nil, []string{"pod-a", "pod-b"}, []string{"pod-a", "pod-b"}},
		{[]string{"pod-a"}, []string{"pod-b"}, []string{"pod-b", "pod-a"}},
		{[]string{"pod-a"}, []string{"pod-b"}, []string{"pod-b", "pod-a"}},
		{nil, []string{"pod-b"}, []string{"pod-b"}},
		{nil, nil, []string{"pod-b"}},
	} {
		m.Running = runningPods(step.running...)
		assert.Empty(t, m.Reconcile(t.Context(), api(usedBy(step.reserved...))))
		assert.ElementsMatch(t, step.want, podsOf())
	}
	m.Running = func([]ledger.Pod) ([]ledger.Pod, error) { return nil, errScripted }
	assert.Empty(t, m.Reconcile(t.Context(), api(usedBy("pod-c"))))
	assert.Equal(t, []string{"pod-b"}, podsOf(), "not while it cannot be told who still runs")
}

// The pods of one claim can be looked up without a reconciliation.
func TestUpdatePods(t *testing.T) {
	_, m := startNode(t, 2)
	c := claims.For("a", claims.Whole(0))
	mustPrepare(t, m, c)
	ref := ledger.ClaimRef{UID: "a", Namespace: c.Namespace, Name: c.Name}
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "late", UID: "late"})
	require.NoError(t, m.UpdatePods(t.Context(), ref, "", api(c)))
	r, _ := m.Ledger.Get("a")
	assert.Equal(t, []string{"pod-a", "late"}, r.PodNames())

	// Answers that are not about what the record is about change nothing.
	c.Status.ReservedFor = c.Status.ReservedFor[1:]
	again, elsewhere := c.DeepCopy(), c.DeepCopy()
	again.UID = "another"
	elsewhere.Status.Allocation = claims.For("a", claims.Whole(1)).Status.Allocation
	for name, get := range map[string]GetClaim{"gone": noClaims, "of the same name": api(again), "with another device": api(elsewhere)} {
		require.NoError(t, m.UpdatePods(t.Context(), ref, "", get), name)
	}
	failing := func(context.Context, string, string) (*resourceapi.ResourceClaim, error) { return nil, errScripted }
	require.ErrorIs(t, m.UpdatePods(t.Context(), ref, "", failing), errScripted)
	found := m.GPUs
	m.GPUs = func() []gpu.GPU { return nil }
	require.ErrorContains(t, m.UpdatePods(t.Context(), ref, "", api(c)), "gpu-0000-01-00-0", "whose device is not found now")
	m.GPUs = found
	unchanged, _ := m.Ledger.Get("a")
	assert.Equal(t, r, unchanged)

	mustRelease(t, m, "a")
	require.NoError(t, m.UpdatePods(t.Context(), ref, "", failing), "nobody is asked of a claim without a record")
}

// The driver is loaded again under a claim: its containers are started again by a file
// that names what there is now.
func TestReconcilePreparesAgainAfterALoadOfTheDriver(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p, m := startNode(t, 1)
	before := mustPrepare(t, m, claims.For("a", one))
	p.hardware.lose()

	// Without a driver there is nothing to do.
	m.LoadID = func(string) string { return "" }
	assert.Empty(t, m.Reconcile(t.Context(), api(claims.For("a", one))))
	require.NoError(t, os.Remove(p.cdiFile("a")))
	assert.Empty(t, m.Reconcile(t.Context(), api(claims.For("a", one))), "not even without a file")
	m.LoadID = p.hardware.loadOf
	p.hardware.loadID = "boot-1, second load"

	findings := m.Reconcile(t.Context(), api(claims.For("a", one)))
	require.Equal(t, []string{"PreparedAgain"}, reasons(findings))
	require.NoError(t, findings[0].Err)
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	r, _ := m.Ledger.Get("a")
	assert.NotEqual(t, before.Devices[0].UUID, r.Devices[0].UUID)
	spec := p.spec("a")
	assert.Contains(t, spec, r.Devices[0].UUID)
	assert.Empty(t, m.Reconcile(t.Context(), api(claims.For("a", one))), "once")
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// A try that fails leaves the record, so that the next one can succeed.
func TestPreparingAgainIsTriedAgain(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", one))
	p.hardware.lose()
	p.hardware.loadID = "boot-1, second load"
	p.hardware.onCreate = at(one, errScripted)
	findings := m.Reconcile(t.Context(), api(claims.For("a", one)))
	require.Equal(t, []string{"PreparedAgain"}, reasons(findings))
	require.ErrorIs(t, findings[0].Err, errScripted)
	assert.NoFileExists(t, p.cdiFile("a"), "nothing starts by what is not there")

	p.hardware.onCreate = nil
	require.Equal(t, []string{"PreparedAgain"}, reasons(p.start().Reconcile(t.Context(), api(claims.For("a", one)))))
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	assert.FileExists(t, p.cdiFile("a"))
}

// Somebody has removed the CDI files: those of allocated claims are written again.
func TestReconcileWritesMissingFiles(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p, m := startNode(t, 1)
	before := mustPrepare(t, m, claims.For("a", one))
	require.NoError(t, os.RemoveAll(p.cdiDir()))
	require.Equal(t, []string{"PreparedAgain"}, reasons(m.Reconcile(t.Context(), api(claims.For("a", one)))))
	assert.FileExists(t, p.cdiFile("a"))
	r, _ := m.Ledger.Get("a")
	assert.Equal(t, before.Devices, r.Devices)
	assert.Empty(t, p.hardware.destroyed)

	// One that nobody uses needs none.
	require.NoError(t, os.RemoveAll(p.cdiDir()))
	unused := claims.For("a", one)
	unused.Status.ReservedFor = nil
	assert.Empty(t, m.Reconcile(t.Context(), api(unused)))
	assert.NoFileExists(t, p.cdiFile("a"))
}

// The kubelet releases the claim between the look at the API and the lock: it is not
// prepared for nobody.
func TestPreparingAgainComesAfterTheRelease(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", one))
	require.NoError(t, os.RemoveAll(p.cdiDir()))
	r, _ := m.Ledger.Get("a")
	mustRelease(t, m, "a")
	assert.Empty(t, m.prepareAgain(t.Context(), claims.For("a", one), r))
	p.nothingHeld(m)
}

// After a load of the driver, a partition can have the device files that another one
// had before. A container that starts again by its old file must not find it.
func TestStaleFilesGoBeforeSomethingNewIsMade(t *testing.T) {
	one, other, elsewhere := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "1g.10gb", 2, 1), claims.MIG(1, "1g.10gb", 0, 1)
	p, m := startNode(t, 2)
	mustPrepare(t, m, claims.For("a", one))
	mustPrepare(t, m, claims.For("c", elsewhere))
	p.hardware.parts = p.hardware.parts[1:]
	p.hardware.loads = map[string]string{claims.Address(0): "boot-1, second load"}
	p.hardware.onCreate = func(context.Context, gpu.Placement) error {
		assert.NoFileExists(t, p.cdiFile("a"))
		return nil
	}
	mustPrepare(t, m, claims.For("b", other))
	p.hardware.onCreate = nil
	assert.FileExists(t, p.cdiFile("c"))

	findings := m.Reconcile(t.Context(), api(claims.For("a", one), claims.For("b", other), claims.For("c", elsewhere)))
	assert.Equal(t, []string{"PreparedAgain"}, reasons(findings))
	assert.FileExists(t, p.cdiFile("a"))
}

// A claim may be reserved for a PodGroup. Nobody tells its pods; they tell when their containers start.
func TestClaimOfAPodGroup(t *testing.T) {
	p, m := startNode(t, 1)
	c := claims.For("a", claims.MIG(0, "1g.10gb", 5, 1))
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "workers", UID: "group"}}
	mustPrepare(t, m, c)
	record := func() ledger.Record {
		r, ok := m.Ledger.Get("a")
		require.True(t, ok)
		return r
	}
	assert.True(t, record().Group)
	assert.Empty(t, record().Pods)

	require.NoError(t, os.RemoveAll(p.cdiDir()))
	require.Equal(t, []string{"PreparedAgain"}, reasons(m.Reconcile(t.Context(), api(c))), "its containers can be started again")
	assert.FileExists(t, p.cdiFile("a"))

	ref := ledger.ClaimRef{UID: "a", Namespace: c.Namespace, Name: c.Name}
	require.NoError(t, m.UpdatePods(t.Context(), ref, "first", api(c)))
	m.Running = func(pods []ledger.Pod) ([]ledger.Pod, error) { return pods, nil }
	require.NoError(t, m.UpdatePods(t.Context(), ref, "second", api(c)))
	assert.Equal(t, []ledger.Pod{{UID: "second"}, {UID: "first"}}, record().Pods)
	assert.Empty(t, record().PodNames())
	assert.Empty(t, m.Reconcile(t.Context(), api(c)))
	assert.Len(t, record().Pods, 2, "they run")

	// The claim is gone: whether containers of other pods run is not known.
	m.Running = runningPods()
	findings := m.Reconcile(t.Context(), noClaims)
	require.Equal(t, []string{"LeftoverInUse"}, reasons(findings))
	require.ErrorContains(t, findings[0].Err, "PodGroup")
	p.hardware.lose()
	p.hardware.loadID = "boot-2"
	require.Equal(t, []string{"LeftoverReleased"}, reasons(m.Reconcile(t.Context(), noClaims)), "no container survives that")
	p.nothingHeld(m)
}

// A pod that tells is not one of a claim that is reserved for other pods.
func TestStrangerOfAClaim(t *testing.T) {
	_, m := startNode(t, 1)
	c := claims.For("a", claims.Whole(0))
	mustPrepare(t, m, c)
	require.NoError(t, m.UpdatePods(t.Context(), ledger.ClaimRef{UID: "a", Namespace: c.Namespace, Name: c.Name}, "stranger", api(c)))
	r, _ := m.Ledger.Get("a")
	assert.Equal(t, []string{"pod-a"}, r.PodNames())
	assert.False(t, r.Group)
}
