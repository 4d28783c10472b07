package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Containers has the names of the containers that use a claim.
type Containers map[Use][]string

// Use is that a pod uses a claim.
type Use struct{ Namespace, Pod, Claim string }

// askPatience is how long the kubelet may take to answer.
const askPatience = 5 * time.Second

// maxAnswer is the size of the kubelet's answer: a node can have hundreds of pods.
const maxAnswer = 16 << 20

// FromKubelet asks the kubelet for the containers that use claims, by its PodResources API
// (kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins, "Monitoring
// device plugin resources"). Pods are told apart by their names, as in the API. It leaves out
// init containers, except those that are restarted always.
func FromKubelet(socket string) func(context.Context) (Containers, error) {
	return func(ctx context.Context) (Containers, error) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
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
		return containersIn(answer), nil
	}
}

func containersIn(answer *podresources.ListPodResourcesResponse) Containers {
	found := Containers{}
	for _, pod := range answer.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, claim := range container.GetDynamicResources() {
				use := Use{claim.GetClaimNamespace(), pod.GetName(), claim.GetClaimName()}
				if !slices.Contains(found[use], container.GetName()) {
					found[use] = append(found[use], container.GetName())
				}
			}
		}
	}
	return found
}

// user is that a pod uses a claim.
type user struct{ claim, pod types.UID }

// beginToAsk tells whether to ask the kubelet: it is not being asked, and a claim is in use.
func (s *Sampler) beginToAsk() bool {
	if s.Containers == nil || !slices.ContainsFunc(s.Records(), ledger.Record.HandedOut) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking {
		return false
	}
	s.asking = true
	return true
}

// ask asks the kubelet which pods and containers use the claims, and has records corrected that
// name other pods.
func (s *Sampler) ask(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = false
	}()
	records := slices.DeleteFunc(s.Records(), func(r ledger.Record) bool { return !r.HandedOut() })
	found, err := s.Containers(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The metrics do not name containers", "reason", err.Error())
		return
	}
	containers := map[user][]string{}
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
func (s *Sampler) doubtful(records []ledger.Record, found Containers) []ledger.ClaimRef {
	type claim struct{ namespace, name string }
	named := map[claim][]string{}
	for use := range found {
		c := claim{use.Namespace, use.Claim}
		named[c] = append(named[c], use.Pod)
	}
	strange := s.usedByStrangers(records)
	checked := map[types.UID]time.Time{}
	var doubtful []ledger.ClaimRef
	for i := range records {
		r := &records[i]
		others := !sameNames(named[claim{r.Claim.Namespace, r.Claim.Name}], r.PodNames())
		if others || slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return strange[d.Placement.Base().Name()] }) {
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

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// usedByStrangers are the devices with processes of pods that do not hold them. The caller holds
// mu.
func (s *Sampler) usedByStrangers(records []ledger.Record) map[string]bool {
	type at struct {
		device string
		pod    types.UID
	}
	holders := map[at]bool{}
	for i := range records {
		for _, d := range records[i].Devices {
			for _, p := range records[i].Pods {
				holders[at{d.Placement.Base().Name(), p.UID}] = true
			}
		}
	}
	found := map[string]bool{}
	for _, last := range s.samples {
		for _, p := range last.Processes {
			if pod := last.pods[p.PID]; pod != "" && !holders[at{p.Device, pod}] {
				found[p.Device] = true
			}
		}
	}
	return found
}

// containerOf returns the container of a pod that uses a claim; empty if it is not known, or if
// several containers use the claim. users are the pod, and those of its name that it replaces.
// The caller holds mu.
func (s *Sampler) containerOf(users ...user) string {
	var names []string
	for _, u := range users {
		names = append(names, s.containers[u]...)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return names[0]
	}
	return ""
}
