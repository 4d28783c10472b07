package follow

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// mostUnprepared is how many claims a report lists.
	mostUnprepared = 8
	// forgetUnprepared is how long a claim is listed that the kubelet does not ask for any more.
	forgetUnprepared = 10 * time.Minute
)

// unprepared are the claims that the hardware could not prepare. It is safe for concurrent use.
type unprepared struct {
	// mu guards claims.
	mu     sync.Mutex
	claims map[types.UID]failedClaim
}

type failedClaim struct {
	v1beta1.UnpreparedClaim
	// last is when it failed last.
	last time.Time
}

// Unprepared records that the hardware could not prepare a claim.
func (f *Follower) Unprepared(c *resourceapi.ResourceClaim, err error) {
	u := &f.unprepared
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.claims == nil {
		u.claims = map[types.UID]failedClaim{}
	}
	now := time.Now()
	failed, known := u.claims[c.UID]
	if !known {
		failed.UnpreparedClaim = v1beta1.UnpreparedClaim{
			Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), FirstFailureTime: metav1.NewTime(now).Rfc3339Copy(),
			Message: text.Cut(err.Error(), v1beta1.MaxListedText),
		}
	}
	failed.last = now
	u.claims[c.UID] = failed
}

// Prepared forgets a claim that was prepared or released.
func (f *Follower) Prepared(uid types.UID) {
	f.unprepared.mu.Lock()
	defer f.unprepared.mu.Unlock()
	delete(f.unprepared.claims, uid)
}

// list are the claims, the ones that failed first come first.
func (u *unprepared) list() []v1beta1.UnpreparedClaim {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []v1beta1.UnpreparedClaim
	for uid, c := range u.claims {
		if time.Since(c.last) > forgetUnprepared {
			delete(u.claims, uid)
			continue
		}
		all = append(all, c.UnpreparedClaim)
	}
	slices.SortFunc(all, func(a, b v1beta1.UnpreparedClaim) int {
		return cmp.Or(a.FirstFailureTime.Compare(b.FirstFailureTime.Time), strings.Compare(a.UID, b.UID))
	})
	return all[:min(len(all), mostUnprepared)]
}

// unhealthy are the GPUs that are tainted as unhealthy, and since when by the last report.
func (f *Follower) unhealthy(gpus []inventory.GPU) []v1beta1.UnhealthyGPU {
	since := map[string]metav1.Time{}
	if f.before != nil {
		for _, g := range f.before.UnhealthyGPUs {
			since[g.Name] = g.DetectionTime
		}
	}
	if f.reported != nil {
		for _, g := range f.reported.UnhealthyGPUs {
			since[g.Name] = g.DetectionTime
		}
	}
	var all []v1beta1.UnhealthyGPU
	for i := range gpus {
		g := &gpus[i]
		if !g.Unhealthy() || f.Drivers.IsUpgrading(g.Vendor) {
			continue
		}
		at, known := since[g.Name()]
		if !known {
			at = metav1.NewTime(time.Now()).Rfc3339Copy()
		}
		all = append(all, v1beta1.UnhealthyGPU{Name: g.Name(), DetectionTime: at})
	}
	return all
}
