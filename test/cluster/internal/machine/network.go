package machine

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Link is a cable from a router to a machine.
type Link struct {
	// Device is the name of the router's end.
	Device string
	// Router is the address of the router, Address that of the machine.
	Router, Address string
	// Subnet is what lies behind the machine: its pods.
	Subnet string
}

// Connect lays the cable: at the router a device and routes to the machine and its subnet, in the machine eth0 with a default
// route to the router. A cable that is there already is replaced.
//
// There is no bridge and no common subnet: every address is a route of its
// own, which works on any kernel and for any number of machines.
func Connect(router, machine Machine, link Link) error {
	if err := connect(router, machine, link); err != nil {
		return fmt.Errorf("connect machine %s with %s: %w", machine.Name, router.Name, err)
	}
	return nil
}

func connect(router, machine Machine, link Link) error {
	atRouter, err := handle(router)
	if err != nil {
		return err
	}
	defer atRouter.Close()
	atMachine, err := handle(machine)
	if err != nil {
		return err
	}
	defer atMachine.Close()

	if old, err := atRouter.LinkByName(link.Device); err == nil {
		if err := atRouter.LinkDel(old); err != nil {
			return fmt.Errorf("remove the old cable: %w", err)
		}
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = link.Device
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsPid(machine.Init.Pid)}
	if err := atRouter.LinkAdd(cable); err != nil {
		return fmt.Errorf("add a pair of virtual network devices (kernel module veth): %w", err)
	}
	routerAddress, machineAddress := net.ParseIP(link.Router), net.ParseIP(link.Address)
	_, subnet, err := net.ParseCIDR(link.Subnet)
	if err != nil {
		return err
	}
	if err := setUpRouter(atRouter, link.Device, routerAddress, machineAddress, subnet); err != nil {
		return err
	}
	return setUpMachine(atMachine, routerAddress, machineAddress)
}

func setUpRouter(handle *netlink.Handle, device string, router, machine net.IP, subnet *net.IPNet) error {
	link, err := upLink(handle, device)
	if err != nil {
		return err
	}
	direct := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: host(machine), Src: router, Scope: netlink.SCOPE_LINK}
	if err := handle.RouteReplace(direct); err != nil {
		return fmt.Errorf("add route to %s: %w", machine, err)
	}
	behind := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: subnet, Gw: machine, Src: router}
	if err := handle.RouteReplace(behind); err != nil {
		return fmt.Errorf("add route to %s: %w", subnet, err)
	}
	return nil
}

func setUpMachine(handle *netlink.Handle, router, machine net.IP) error {
	link, err := upLink(handle, "eth0")
	if err != nil {
		return err
	}
	if err := handle.AddrAdd(link, &netlink.Addr{IPNet: host(machine)}); err != nil {
		return fmt.Errorf("add address %s: %w", machine, err)
	}
	direct := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: host(router), Scope: netlink.SCOPE_LINK}
	if err := handle.RouteReplace(direct); err != nil {
		return fmt.Errorf("add route to %s: %w", router, err)
	}
	_, everything, _ := net.ParseCIDR("0.0.0.0/0")
	if err := handle.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: router, Src: machine}); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

func upLink(handle *netlink.Handle, device string) (netlink.Link, error) {
	link, err := handle.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", device, err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("start device %s: %w", device, err)
	}
	return link, nil
}

func handle(machine Machine) (*netlink.Handle, error) {
	namespace, err := netns.GetFromPid(machine.Init.Pid)
	if err != nil {
		return nil, fmt.Errorf("network of machine %s: %w", machine.Name, err)
	}
	defer namespace.Close()
	return netlink.NewHandleAt(namespace)
}

func host(address net.IP) *net.IPNet {
	return &net.IPNet{IP: address, Mask: net.CIDRMask(32, 32)}
}
