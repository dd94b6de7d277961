from roquet.spark.log.selection import Selection

class Conditions:
    def __init__(self, selection: Selection) -> None: ...
