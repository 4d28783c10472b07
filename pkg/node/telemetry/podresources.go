package telemetry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Containers has the names of the containers that use a claim.
type Containers map[Use][]string

// Use is that a pod uses a claim.
type Use struct{ Namespace, Pod, Claim string }

// askTimeout is how long the kubelet may take to answer.
const askTimeout = 5 * time.Second

// maxAnswer is the size of the kubelet's answer: a node can have hundreds of pods.
const maxAnswer = 16 << 20

// ContainersFromKubelet asks the kubelet for the containers that use claims, by its PodResources API
// (kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins, "Monitoring
// device plugin resources"). Pods are told apart by their names, as in the API. It leaves out
// init containers, except those that are restarted always.
func ContainersFromKubelet(socket string) func(context.Context) (Containers, error) {
	return func(ctx context.Context) (Containers, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
		if err != nil {
			return nil, fmt.Errorf("ask the kubelet for the containers of claims: %w", err)
		}
		defer func() { _ = conn.Close() }()
		answer, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
		if err != nil {
			return nil, fmt.Errorf("ask the kubelet for the containers of claims at %s: %w", socket, err)
		}
		found := Containers{}
		for _, pod := range answer.GetPodResources() {
			for _, container := range pod.GetContainers() {
				for _, claim := range container.GetDynamicResources() {
					use := Use{claim.GetClaimNamespace(), pod.GetName(), claim.GetClaimName()}
					found[use] = append(found[use], container.GetName())
				}
			}
		}
		return found, nil
	}
}

// containersOf has the names of the containers of each user of a claim. It does not change.
type containersOf map[user][]string

// of returns the container of users; empty if it is not known, or if there are several.
func (c containersOf) of(users []user) string {
	all := sets.New[string]()
	for _, u := range users {
		all.Insert(c[u]...)
	}
	if all.Len() == 1 {
		return all.UnsortedList()[0]
	}
	return ""
}

// handedOut are the records of claims that containers may use.
func handedOut(records []ledger.Record) []ledger.Record {
	return slices.DeleteFunc(records, func(r ledger.Record) bool { return !r.HandedOut() })
}

// ask asks the kubelet which pods and containers use the claims, and has records corrected that
// name other pods.
func (s *Sampler) ask(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = false
	}()
	records := handedOut(s.Records())
	found, err := s.Containers(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot name containers in metrics", "err", err)
		return
	}
	containers := containersOf{}
	for i := range records {
		for _, p := range records[i].Pods {
			c := records[i].Claim
			containers[user{c.UID, p.UID}] = found[Use{c.Namespace, p.Name, c.Name}]
		}
	}
	s.mu.Lock()
	s.containers = containers
	doubtful := s.doubtful(records, found)
	s.mu.Unlock()
	if s.CheckPods == nil {
		return
	}
	for _, claim := range doubtful {
		s.CheckPods(ctx, claim)
	}
}

// maxChecks is how many claims are checked in an interval. Each asks the API server, and tenants
// can make claims whose pods the kubelet never names: it leaves out init containers.
const maxChecks = 4

// doubtful returns claims whose records may name the wrong pods: the kubelet names others, or
// others have processes on a device. Those that were not checked for the longest time come first.
// The caller holds mu.
func (s *Sampler) doubtful(records []ledger.Record, found Containers) (doubtful []ledger.ClaimRef) {
	type claim struct{ namespace, name string }
	named := map[claim]sets.Set[string]{}
	for use := range found {
		c := claim{use.Namespace, use.Claim}
		if named[c] == nil {
			named[c] = sets.New[string]()
		}
		named[c].Insert(use.Pod)
	}
	strange := s.usedByStrangers(records)
	checked := map[types.UID]time.Time{}
	for i := range records {
		r := &records[i]
		if r.Group {
			continue // its pods are not in the record
		}
		others := !named[claim{r.Claim.Namespace, r.Claim.Name}].Equal(sets.New(r.PodNames()...))
		if others || slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return strange.Has(d.Placement.Base().Name()) }) {
			doubtful = append(doubtful, r.Claim)
			checked[r.Claim.UID] = s.checked[r.Claim.UID]
		}
	}
	slices.SortStableFunc(doubtful, func(a, b ledger.ClaimRef) int { return checked[a.UID].Compare(checked[b.UID]) })
	doubtful = doubtful[:min(maxChecks, len(doubtful))]
	for _, c := range doubtful {
		checked[c.UID] = time.Now()
	}
	s.checked = checked
	return doubtful
}

// usedByStrangers are the devices with processes of pods that do not hold them. The caller holds
// mu.
func (s *Sampler) usedByStrangers(records []ledger.Record) sets.Set[string] {
	type at struct {
		device string
		pod    types.UID
	}
	holders, found := sets.New[at](), sets.New[string]()
	for i := range records {
		for _, d := range records[i].Devices {
			for _, p := range records[i].Pods {
				holders.Insert(at{d.Placement.Base().Name(), p.UID})
			}
		}
	}
	for of := range maps.Values(s.gpus) {
		if of.last == nil {
			continue
		}
		for _, p := range of.last.Processes {
			if pod := of.last.pods[p.PID]; pod != "" && !holders.Has(at{p.Device, pod}) {
				found.Insert(p.Device)
			}
		}
	}
	return found
}
