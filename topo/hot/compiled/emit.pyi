from topo.hot.plain.emit import Emit as Emit
from topo.hot.plain.emit import EmitFour as EmitFour
from topo.hot.plain.emit import EmitMessage as EmitMessage
from topo.hot.plain.emit import EmitMessageOne as EmitMessageOne
from topo.hot.plain.emit import EmitOne as EmitOne
from topo.hot.plain.emit import EmitThree as EmitThree
from topo.hot.plain.emit import EmitTwo as EmitTwo
