// A device plugin for nodes of the test cluster, with the kubelet's own stub: `device-plugin RESOURCE COUNT PREFIX
// VARIABLE SURPLUS` offers COUNT devices. A container gets the device file PREFIX with the number of each device that
// the kubelet has allotted to it, and VARIABLE with these numbers. SURPLUS: how many files it gets beyond that (a plugin
// that is wrong); negative: how many it does not get. Each file is /dev/null of the node. Built by build.sh.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	resource, count, prefix, variable, surplus := os.Args[1], number(os.Args[2]), os.Args[3], os.Args[4], number(os.Args[5])
	devices := make([]*pluginapi.Device, count)
	for index := range devices {
		devices[index] = &pluginapi.Device{ID: strconv.Itoa(index), Health: pluginapi.Healthy}
	}
	socket := pluginapi.DevicePluginPath + strings.Replace(resource, "/", "-", 1) + ".sock"
	stub := devicemanager.NewDevicePluginStub(devices, socket, resource, false, false)
	stub.SetAllocFunc(func(request *pluginapi.AllocateRequest, _ map[string]pluginapi.Device) (*pluginapi.AllocateResponse, error) {
		answer := &pluginapi.AllocateResponse{}
		for _, container := range request.ContainerRequests {
			ids := append([]string{}, container.DevicesIDs...)
			sort.Strings(ids)
			given := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{variable: strings.Join(ids, ",")}}
			for extra := 0; extra < surplus; extra++ {
				ids = append(ids, strconv.Itoa(count+extra))
			}
			for position, id := range ids {
				if position < len(ids)+surplus || surplus >= 0 {
					device := &pluginapi.DeviceSpec{ContainerPath: prefix + id, HostPath: "/dev/null", Permissions: "rw"}
					given.Devices = append(given.Devices, device)
				}
			}
			answer.ContainerResponses = append(answer.ContainerResponses, given)
		}
		return answer, nil
	})
	if err := stub.Start(); err != nil {
		panic(err)
	}
	if err := stub.Register(pluginapi.KubeletSocket, resource, pluginapi.DevicePluginPath); err != nil {
		panic(err)
	}
	fmt.Println("registered")
	select {}
}
